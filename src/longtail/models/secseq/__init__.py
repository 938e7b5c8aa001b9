"""SeCSeq: labels as short semantic codes, predicted by a sequence or set network (Chang et al. 2018)."""
