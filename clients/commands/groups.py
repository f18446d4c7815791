"""Groups of commands that list what there is if they are told nothing else."""

import click


class ListByDefault(click.Group):
    """`leveret queues --json` is `leveret queues list --json`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        wants_help = bool(args) and args[0] in ctx.help_option_names
        if not wants_help and (not args or args[0].startswith("-")):
            args = ["list", *args]
        return super().parse_args(ctx, args)
