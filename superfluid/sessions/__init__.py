"""What a session is: state folded from its records, the tree, and the rules that turn requests into records.

Pure: time arrives inside events, tokens arrive rendered. The daemon appends what these rules decide and then applies
it; recovery applies the same records in the same order, so both end in the same state.
"""
