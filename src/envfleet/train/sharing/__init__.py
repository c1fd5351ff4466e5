"""What a run gives to others: a report, a model card, the policy as one file. All of it is made from the run's folder.

`facts` reads a folder, `chart_data` makes curves of several, `report` and `card` write them down, `export` writes the
policy. `pages` holds what web pages are made of; the live page (`envfleet.train.watching`) uses it too.
"""
