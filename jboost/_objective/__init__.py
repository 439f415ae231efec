"""What boosting minimises: a loss, its derivatives and best constant, and how a leaf is fitted."""
