#!/usr/bin/env bash
# Tries what deploy/ and docker-compose.yml ship. Where a Docker engine answers, it builds the image, brings the stack up under a
# name and on ports of its own, uses it, breaks it, and takes it down again. What it could not try it lists, with the reason.
#
#   deploy/verify.sh
#
# PYTHON=/path/to/python3 is an environment with the project; without it .venv is. BUILD_FLAGS goes to docker build.
# Exit code 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

PYTHON=${PYTHON:-.venv/bin/python}
PATH="$(dirname "$PYTHON"):$PATH"
export DOCKER_BUILDKIT=1 COMPOSE_PROJECT_NAME=dragoman-verify DRAGOMAN_PORT=18500 DRAGOMAN_HTTP_PORT=18580 ENVOY_PORT=18080 PROMETHEUS_PORT=19090 ALERTMANAGER_PORT=19093 GRAFANA_PORT=13000
IMAGE=dragoman:cpu
MOST_MB=400
MOST_BUILD_S=300
MOST_START_S=60
ENGLISH='The weather is nice today.'
PORTUGUESE='O tempo é bom hoje.'
work=$(mktemp -d)
failures=0
left_out=()

heading() { printf '\n%s\n' "$1"; }
ok() { printf '  ok       %s\n' "$*"; }
not_tried() { printf '  not run  %s\n' "$*" && left_out+=("$*"); }
failed() {
  printf '  FAILED   %s\n' "$*"
  sed 's/^/           /' "$work/output" | tail -20
  failures=$((failures + 1))
}
# check WHAT COMMAND...: says whether the command succeeds, and shows its output only where it does not.
check() {
  local what=$1
  shift
  if "$@" > "$work/output" 2>&1; then ok "$what"; else failed "$what"; fi
}
# needs TOOL WHAT: whether the tool is installed; says so where it is not.
needs() { command -v "$1" > /dev/null || { not_tried "$2: $1 is not installed" && false; }; }
# eventually COMMAND...: waits until it succeeds, two minutes at most.
eventually() {
  local deadline=$((SECONDS + 120))
  until "$@"; do ((SECONDS < deadline)) || return 1; sleep 0.2; done
}

compose() { if docker compose version > /dev/null 2>&1; then docker compose "$@"; else docker-compose "$@"; fi; }
have_compose() { compose version > /dev/null 2>&1; }
dragoman() { "$PYTHON" -m dragoman "$@"; }
get() { curl --silent --show-error --fail --max-time 10 "$@"; }
# of_json EXPRESSION: its value, `it` being the JSON on standard input.
of_json() { "$PYTHON" -c "import json, sys; it = json.load(sys.stdin); print($1)"; }
# query PROMQL: the value of a single series.
query() { get --get --data-urlencode "query=$1" "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/query" | of_json 'it["data"]["result"][0]["value"][1]'; }
is() { [ "$(query "$1" 2> /dev/null)" = "$2" ]; }
clean_up() {
  if have_compose && docker info > /dev/null 2>&1; then
    docker rm --force dragoman-verify-alone > /dev/null 2>&1
    compose --profile '*' down --volumes --timeout 5 > /dev/null 2>&1
  fi
  rm -r "$work"
}
trap clean_up EXIT

without_an_engine() {
  heading 'Without an engine'
  if have_compose; then
    for profile in cpu gpu envoy; do check "compose file, profile $profile" compose --profile $profile config --quiet; done
  else
    not_tried 'compose file: neither "docker compose" nor docker-compose is installed'
  fi
  needs hadolint 'Dockerfile' && check 'Dockerfile: hadolint' hadolint deploy/Dockerfile
  if needs promtool 'Prometheus: configuration, rules and their tests'; then
    check 'Prometheus: configuration and rules' promtool check config deploy/prometheus/prometheus.yml
    check 'Prometheus: tests of the rules' promtool test rules deploy/prometheus/tests/*.yml
  fi
  needs amtool 'Alertmanager: configuration' && check 'Alertmanager: configuration' amtool check-config deploy/alertmanager/alertmanager.yml
  if needs envoy 'Envoy: configuration'; then
    sed "s#/etc/envoy/#$PWD/deploy/envoy/#" deploy/envoy/envoy.yaml > "$work/envoy.yaml"
    check 'Envoy: configuration' envoy --mode validate --config-path "$work/envoy.yaml"
  fi
  check 'chart, compose file and image: tests/deploy/test_helm.py, tests/deploy/test_deploy.py' "$PYTHON" -m pytest -q -rs tests/deploy/test_helm.py tests/deploy/test_deploy.py
  while read -r line; do not_tried "$line"; done < <(grep --only-matching 'SKIPPED.*' "$work/output")
}

build() {
  heading 'The image'
  local start=$SECONDS seconds megabytes
  # shellcheck disable=SC2086  # flags
  check 'builds' docker build --file deploy/Dockerfile --target cpu --tag $IMAGE ${BUILD_FLAGS:-} .
  seconds=$((SECONDS - start))
  docker image inspect $IMAGE > /dev/null 2>&1 || return 1
  check "in $seconds s, at most $MOST_BUILD_S (what the engine had built before counts as nothing)" test $seconds -le $MOST_BUILD_S
  megabytes=$(($(docker image inspect --format '{{.Size}}' $IMAGE) / 1000000))
  check "takes $megabytes MB, at most $MOST_MB" test $megabytes -le $MOST_MB
  check 'has no torch' docker run --rm --network none --entrypoint python $IMAGE -c 'import importlib.util; assert not importlib.util.find_spec("torch")'
  check 'runs as user 10001' test "$(docker image inspect --format '{{.Config.User}}' $IMAGE)" = 10001:10001
  alone
}

# As hard as it gets: no network but its own, nothing writable, no capability, no shell.
alone() {
  local shells=()
  for shell in sh bash dash; do shells+=(--volume "/dev/null:/bin/$shell:ro"); done
  check 'starts read-only, without capabilities and without a shell' docker run --detach --name dragoman-verify-alone --read-only \
    --network none --cap-drop ALL --security-opt no-new-privileges "${shells[@]}" $IMAGE
  check 'is healthy by its own health check' eventually healthy dragoman-verify-alone
  check 'translates' docker exec dragoman-verify-alone python -m dragoman translate "$ENGLISH"
  check 'is stopped' docker stop dragoman-verify-alone
  check 'ended with 0' test "$(docker inspect --format '{{.State.ExitCode}}' dragoman-verify-alone)" = 0
}
healthy() { [ "$(docker inspect --format '{{.State.Health.Status}}' "$1")" = healthy ]; }

# The services whose images are there, or can be had.
available() {
  local service image
  while read -r service image; do
    if docker image inspect "$image" > /dev/null 2>&1 || compose pull --quiet "$service" > /dev/null 2>&1; then
      printf '%s ' "$service"
    fi
  done < <(compose --profile envoy config --format json | of_json '"\n".join(name + " " + service["image"] for name, service in it["services"].items())')
}

stack() {
  heading 'docker compose up'
  local services start text
  services=" $(available)"
  for service in prometheus alertmanager grafana envoy; do
    [[ $services == *" $service "* ]] || not_tried "$service: there is no image of it here, and none can be had"
  done
  start=$SECONDS
  # shellcheck disable=SC2086  # a list
  check 'everything starts and is healthy' compose --profile cpu up --detach --wait ${services/ envoy/}
  check "in $((SECONDS - start)) s, at most $MOST_START_S" test $((SECONDS - start)) -le $MOST_START_S
  text=$(dragoman translate --target 127.0.0.1:$DRAGOMAN_PORT "$ENGLISH" 2>&1)
  check "translates through the published port: $text" test "$text" = "$PORTUGUESE"
  text=$(curl --silent --max-time 10 --data-urlencode "q=$ENGLISH" --data source=en --data target=pt "http://127.0.0.1:$DRAGOMAN_HTTP_PORT/translate")
  check "translates by HTTP: $text" test "$text" = "{\"translatedText\":\"$PORTUGUESE\"}"
  if [[ $services == *" prometheus "* ]]; then
    check 'Prometheus scrapes the server' eventually is 'sum(up{job="dragoman"})' 1
    check 'Prometheus has evaluated every rule without an error' eventually rules_work
    check 'Prometheus has found Alertmanager' eventually alertmanager_found
  fi
  [[ $services == *" grafana "* ]] && check 'Grafana has the dashboards' eventually dashboards_there
  [[ $services == *" envoy "* && $services == *" prometheus "* ]] && replicas
}
rules_work() { [ "$(get "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/rules" | of_json '{rule["health"] for group in it["data"]["groups"] for rule in group["rules"]}')" = "{'ok'}" ]; }
alertmanager_found() { [ "$(get "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/alertmanagers" | of_json 'len(it["data"]["activeAlertmanagers"])')" = 1 ]; }
dashboards_there() { [ "$(get "http://127.0.0.1:$GRAFANA_PORT/api/search?type=dash-db" | of_json 'len(it)')" = "$(find deploy/grafana/dashboards -name '*.json' | wc -l)" ]; }

CALLS='sum(dragoman_rpc_requests_total{method=~".*/Translate"})'
# lines N: a file with so many texts, and none translated.
lines() {
  for ((i = 1; i <= $1; i++)); do echo "Train number $i to Lisbon leaves at noon."; done > "$work/texts"
  : > "$work/translations"
}
# Every text is a call of its own, through Envoy, by the client with its own retries; one without an answer fails.
translate_all() { dragoman translate --target 127.0.0.1:$ENVOY_PORT --concurrency 16 --file "$work/texts" > "$work/translations"; }
answered() { grep --count . "$work/translations"; }
under_way() { [ "$(answered)" -ge 40 ]; }
all_answered() { wait "$1" && [ "$(answered)" = "$(wc -l < "$work/texts")" ]; }
replica() { compose ps --quiet server | head -1; }
three() { DRAGOMAN_PORT=18500-18502 DRAGOMAN_HTTP_PORT=18580-18582 compose --profile envoy up --detach --wait --scale server=3 --no-recreate "$@"; }

replicas() {
  heading 'docker compose --profile envoy up --scale server=3'
  compose rm --stop --force server > /dev/null 2>&1
  check 'three servers and Envoy are healthy' three server envoy
  check 'Prometheus sees three servers' eventually is 'sum(up{job="dragoman"})' 3
  evenly
  json
  killed
  check 'the killed one is replaced' three server
  stopped
}

json() {
  local post=(curl --silent --max-time 10 --header 'Content-Type: application/json' "http://127.0.0.1:$ENVOY_PORT/dragoman.v1.TranslationService/Translate")
  local text
  text=$("${post[@]}" --data "{\"contents\": [\"$ENGLISH\"]}" | of_json 'it["translations"][0]["hypotheses"][0]["text"]' 2>&1)
  check "JSON through Envoy: $text" test "$text" = "$PORTUGUESE"
  text=$("${post[@]}" --data '{"contents": [" "]}' | of_json 'it["details"][0]["reason"], it["message"]' 2>&1)
  check "an error in JSON: $text" grep --quiet BLANK <<< "$text"
}

evenly() {
  lines 300
  check '300 calls through Envoy are answered' translate_all
  check 'Prometheus has counted each of them once' eventually is "$CALLS" 300
  check "calls of each server: $(get --get --data-urlencode 'query=dragoman_rpc_requests_total{method=~".*/Translate"}' "http://127.0.0.1:$PROMETHEUS_PORT/api/v1/query" |
    of_json '" ".join(s["value"][1] for s in it["data"]["result"])'); the least has 0.7 of the most" \
    is 'min(sum by (instance) (dragoman_rpc_requests_total{method=~".*/Translate"})) >= bool 0.7 * max(sum by (instance) (dragoman_rpc_requests_total{method=~".*/Translate"}))' 1
}

killed() {
  local calls
  lines 400
  translate_all &
  calls=$!
  eventually under_way
  check "one server is killed when $(answered) of 400 calls are answered" docker kill "$(replica)"
  check 'no call is lost: 400 are answered' all_answered $calls
}

stopped() {
  local calls server
  server=$(replica)
  lines 400
  translate_all &
  calls=$!
  eventually under_way
  check "one server is stopped when $(answered) of 400 calls are answered" docker stop --time 40 "$server"
  check 'no call is lost: 400 are answered' all_answered $calls
  check "it has drained: $(docker logs "$server" 2>&1 | grep --only-matching 'draining: .* calls are running')" \
    test "$(docker inspect --format '{{.State.ExitCode}}' "$server")" = 0
}

without_an_engine
if ! docker info > /dev/null 2>&1; then
  heading 'With an engine'
  not_tried 'image and stack: no Docker engine answers'
elif ! have_compose; then
  heading 'With an engine'
  not_tried 'image and stack: neither "docker compose" nor docker-compose is installed'
else
  build && stack
fi

heading "$failures failed, ${#left_out[@]} not run"
for reason in "${left_out[@]}"; do echo "  $reason"; done
exit $((failures > 0))
