"""`headwater replay`: a sink of a service is told events once more, from the journal or from the copies.

The command opens the store of the service, whether that is at work or not; the sink's thread sees it within a second.
"""

from pathlib import Path

import click

from headwater.aggregator.configuration import read_aggregation
from headwater.aggregator.sinks import replay, replay_dead, replay_held
from headwater.aggregator.sqlite_store import existing_store
from headwater.cli.output import counted, json_option, show_result
from headwater.cli.shared_options import option
from headwater.errors import Exit, UsageFault

_WAYS = ("--after", "--all", "--dead")


@click.command(name="replay")
@click.argument("config_file", metavar="CONFIG", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("sink", metavar="SINK")
@option("--after N", "Begin again after the event with this number.", click.IntRange(0))
@option("--all", "Tell of all that the copies hold.", name="everything")
@option("--dead", "Tell its dead letters again.")
@json_option
def command(config_file: Path, sink: str, after: int | None, everything: bool, dead: bool, as_json: bool) -> Exit:
    """Tell a sink of the service with this CONFIG events once more. Other sinks get nothing.

    With --after, events come with the numbers that they had. With --all and --dead they come with new numbers, after
    what the sink waits for, as the resources are by now.

    Exit statuses: 0 done; 2 usage; 6 a store or a copy cannot be read.
    """
    given = [way for way, is_given in zip(_WAYS, (after is not None, everything, dead), strict=True) if is_given]
    if len(given) != 1:
        raise UsageFault(f"one of {', '.join(_WAYS)} is needed", advice="Say what the sink is to be told.")
    config = read_aggregation(config_file)
    with existing_store(config.state) as store:
        if after is not None:
            told = replay(store, config, sink, after)
        else:
            told = replay_held(store, config, sink) if everything else replay_dead(store, config, sink)
        state = store.sink(sink)
    result = {"sink": sink, "events": told, "acknowledged": state.acknowledged, "waiting": state.waiting}
    verb = "waits" if state.waiting == 1 else "wait"
    words = (
        f"{sink} will be told {counted(told, 'event')}; {state.waiting:,} {verb} after number {state.acknowledged:,}"
    )
    show_result(result, words, as_json=as_json)
    return Exit.DONE
