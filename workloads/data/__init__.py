"""Token folders: text is converted to tokens once, and training reads them by row."""
