// Validates objects, a JSON array on standard input, by the schemas of KEDA and the Prometheus operator.
// tests/deploy/test_helm.py puts it beside the packages that have them.
import { ScaledObject } from "@kubernetes-models/keda/keda.sh/v1alpha1/ScaledObject";
import { ServiceMonitor } from "@kubernetes-models/prometheus-operator/monitoring.coreos.com/v1/ServiceMonitor";

const kinds = { ScaledObject, ServiceMonitor };
let input = "";
for await (const chunk of process.stdin) input += chunk;
for (const object of JSON.parse(input)) new kinds[object.kind](object).validate();
