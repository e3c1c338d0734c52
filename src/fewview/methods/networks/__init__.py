"""Methods that train networks, in every task or beforehand: CPM, CPM-GAN, ICMSC and COMPLETER."""
