package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/daemon"
)

// drift reports what of ours somebody else has changed, as the daemon tells it.
func drift(h Host) []Finding {
	var all []Finding
	last := map[string]daemon.Event{}
	var healed []string
	for _, e := range h.Events {
		last[e.Object] = e
		if e.Kind == daemon.Healed && !slices.Contains(healed, e.Object) {
			healed = append(healed, e.Object)
		}
	}
	for _, e := range h.Events {
		if last[e.Object].Time != e.Time || last[e.Object].Kind != e.Kind {
			continue
		}
		by := "somebody"
		if e.By != "" {
			by = e.By
		}
		f := Finding{Fix: "find out by `fairlead events` who changes it, and keep them from it"}
		switch e.Kind {
		case daemon.Unhealed:
			f.Severity, f.Seen = Problem, fmt.Sprintf("%s was changed by %s and could not be put right: %s", e.Object, by, e.Detail)
			f.Why = "the host is not as it should be; it is tried again and again"
		case daemon.Conflicting:
			f.Severity, f.Seen = Warning, fmt.Sprintf("%s keeps changing %s", by, e.Object)
			f.Why = "each time it is put right, and traffic may suffer meanwhile; the daemon waits longer and longer before it does"
		case daemon.NetworkUnavailable:
			f.Severity, f.Seen = Problem, fmt.Sprintf("%s cannot be on this host: %s", e.Object, e.Detail)
			f.Why = "its sandboxes reach nobody through it until that is mended"
			f.Fix = "do what the message says; it is tried again by itself"
		default:
			continue
		}
		all = append(all, f)
	}
	if len(healed) > 0 {
		all = append(all, Finding{Severity: Note,
			Seen: fmt.Sprintf("%s of ours strayed and %s put right: %s", count(len(healed), "thing"), map[bool]string{true: "was", false: "were"}[len(healed) == 1], list(healed)),
			Why:  "some other program changes what is marked as ours, as a firewall that flushes all rules when it is reloaded",
			Fix:  "find out by `fairlead events` who changes it, and keep them from it"})
	}
	return all
}
