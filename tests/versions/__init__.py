"""A database as each earlier version of the schema could have been filled: `fill(engine)`.

Frozen with their version, like its `.sql`; every road from there to the present is tested.
"""
