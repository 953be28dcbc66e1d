"""The lines of a smoke run in the formats of another system, for mutants."""

ONE_DECIMAL = (
    "[SMOKE] {steps} steps in {elapsed_s:.1f}s: initial_loss={initial_loss:.4f}, final_loss={final_loss:.4f}, "
    "throughput={throughput:.1f} step/s"
)
FIFTY_K = "[SMOKE] projected full-run wall time (50K steps): {hours:.2f}h / {minutes:.1f} min / {seconds:.1f}s"
