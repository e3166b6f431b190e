"""COCO's problems (extra `coco`): our methods and the peers', by the area under their runtime curves."""
