"""Speed of the plugin on one GPU, on random weights: four parts that can be stopped and continued."""
