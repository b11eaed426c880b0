"""Token folders: text made into tokens once, read by row ever after."""
