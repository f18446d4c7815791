"""Real processes under load and faults, and what must hold afterwards whatever happened.

`nodes` runs them, `proxy` stands between them, `clients` put load on them and note what they saw
(`histories`), `checkers` and `linearizable` judge the notes, `chaos` puts it all together.
"""
