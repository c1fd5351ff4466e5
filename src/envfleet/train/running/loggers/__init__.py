"""Where the rows of metrics.csv go besides: viewers such as TensorBoard, one file each.

`registry` is the table of all loggers, `log_writer` says what one is.
"""
