"""`python -m deploy.grafana`: writes the dashboards that Grafana is provisioned with."""

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana import batching, faults, latency, models, overview, resources

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS = {
    module.__name__.rpartition(".")[2]: module.dashboard
    for module in (overview, latency, batching, faults, resources, models)
}


def render() -> dict[str, str]:
    """File name -> JSON of every dashboard."""
    encoder = JSONEncoder(sort_keys=True, indent=2)
    return {f"{name}.json": encoder.encode(dashboard()) + "\n" for name, dashboard in DASHBOARDS.items()}


def main() -> None:
    """Writes all, and removes what is no dashboard any more."""
    files = render()
    for old in FOLDER.glob("*.json"):
        if old.name not in files:
            old.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
