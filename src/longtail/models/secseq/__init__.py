"""SeCSeq: labels as short codes, predicted by a sequence or set network (Chang, Yu, Dhillon and Yang 2018)."""
