"""`dragoman reload`: each server takes up a new version, one after the other."""

from dragoman.async_client import AsyncClient
from dragoman.command import output
from dragoman.command.flags.arguments import Arguments
from dragoman.command.output import complain
from dragoman.errors import DragomanError

DONE, FAILED = 0, 1


async def reload_each(args: Arguments) -> int:
    """Reloads every target in turn and writes what came of each. Returns the exit code.

    The first that fails ends it: what one server refuses, the others have not taken up yet.
    """
    several = len(args.targets) > 1
    for index, target in enumerate(args.targets):
        whose = f"{target}: " if several else ""
        try:
            async with AsyncClient(target, tls=args.tls_options(), token=args.token, wait_for_ready=False) as client:
                reloaded = await client.reload(args.model, timeout_s=args.timeout)
        except DragomanError as error:
            complain(f"{whose}{output.explained(error, [target], args.timeout)}{_spared(args.targets[index + 1 :])}")
            return FAILED
        shown = output.reloaded_json(reloaded, target) if args.json else whose + output.reloaded_line(reloaded)
        print(shown, flush=True)
    return DONE


def _spared(targets: list[str]) -> str:
    return f"; not reloaded: {', '.join(targets)}" if targets else ""
