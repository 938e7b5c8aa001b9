"""Work that is divided into shards, and the engines that run them: processes of this machine, Dask, Ray."""
