"""What all dashboards have: the choices at the top, the marks on the time axis, the links to each other."""

from collections.abc import Mapping, Sequence

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    AnnotationContainer,
    AnnotationQuery,
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    Panel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from deploy.grafana.panels import SOURCE
from deploy.grafana.queries import INSTANCE, MODEL

TAG = "dragoman"
OF_MODEL = 'dragoman_model_info{model=~"$model"'
"""Series of servers that have one of the chosen models, to be narrowed further."""
ANY = ".*"
"""Also those that have no such label: servers without Ray are no replicas."""

Sections = Mapping[str, Sequence[Builder[Panel]]]
"""Heading -> panels, in rows of 24 columns."""


class Marks(AnnotationQuery):
    """Marks at the times that the values of a query are, in milliseconds since the epoch."""

    def __init__(self, name: str, color: str, query: str, text: str) -> None:
        super().__init__(name=name, datasource=SOURCE, icon_color=color, expr=query)
        self._text = text

    def to_json(self) -> dict[str, object]:
        """With what the library does not know: that a value is a time, and what a mark says."""
        return {**super().to_json(), "useValueForTime": True, "titleFormat": self.name, "textFormat": self._text}


def build(name: str, title: str, description: str, sections: Sections) -> Dashboard:
    """A dashboard of panels under headings, marked where a server started and where it had loaded its model.

    `name` is the end of its address.
    """
    unfinished = (
        dashboard.Dashboard(f"Dragoman / {title}")
        .uid(f"dragoman-{name}")
        .description(description)
        .tags([TAG])
        .refresh("10s")
        .time("now-30m", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_choice("model", "Model", "label_values(dragoman_model_info, model)"))
        .with_variable(_choice("replica", "Replica on Ray", f"label_values({OF_MODEL}}}, replica)"))
        .with_variable(_choice("instance", "Instance", f'label_values({OF_MODEL}, replica=~"$replica"}}, instance)'))
        .link(_links())
    )
    for heading, panels in sections.items():
        unfinished.with_row(dashboard.Row(heading))
        for panel in panels:
            unfinished.with_panel(panel)
    built = unfinished.build()
    built.annotations = AnnotationContainer(list_val=_marks())
    return built


def _marks() -> list[AnnotationQuery]:
    started = f"process_start_time_seconds{{{INSTANCE}}} * 1000"
    loaded = f"dragoman_model_loaded_timestamp_seconds{{{MODEL}}} * 1000"
    return [
        Marks("Start", "red", started, "{{instance}}"),
        Marks("Model loaded", "blue", loaded, "{{model}} on {{instance}}"),
    ]


def _choice(name: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query({"query": query, "refId": name})
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
        .include_all(True)
        .all_value(ANY)
    )


def _links() -> dashboard.DashboardLink:
    return (
        dashboard.DashboardLink("Dragoman")
        .type(DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(True)
        .include_vars(True)
        .keep_time(True)
    )
