package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/api"
)

// drift reports Fairlead's objects that other programs change, from the daemon's
// events.
func drift(h Host) []Finding {
	var all []Finding
	last := map[string]api.Event{}
	var healed []string
	for _, e := range h.Events {
		last[e.Object] = e
		if e.Kind == api.Healed && !slices.Contains(healed, e.Object) {
			healed = append(healed, e.Object)
		}
	}
	for _, e := range h.Events {
		if last[e.Object].Time != e.Time || last[e.Object].Kind != e.Kind {
			continue
		}
		by := "another program"
		if e.By != "" {
			by = e.By
		}
		f := Finding{Fix: findProgram}
		switch e.Kind {
		case api.Unhealed:
			f.Severity, f.Seen = Problem, fmt.Sprintf("%s is not as it should be, and could not be repaired: %s", e.Object,
				e.Detail)
			if e.By != "" {
				f.Seen = fmt.Sprintf("%s was changed by %s and could not be repaired: %s", e.Object, by, e.Detail)
			}
			f.Why = "the host is not in the desired state; the daemon keeps trying"
		case api.Conflicting:
			f.Severity, f.Seen = Warning, fmt.Sprintf("%s keeps changing %s", by, e.Object)
			f.Why = "the daemon repairs it after each change, but waits longer each time; until the repair, traffic may be lost"
		default:
			continue
		}
		all = append(all, f)
	}
	if len(healed) > 0 {
		all = append(all, Finding{Severity: Note,
			Seen: fmt.Sprintf("the daemon repaired %s that differed from the desired state: %s",
				count(len(healed), "object"), list(healed)),
			Why: "another program changes Fairlead's objects, e.g. a firewall that flushes all rules when it reloads",
			Fix: findProgram})
	}
	return all
}

// findProgram is the fix if another program changes Fairlead's objects.
const findProgram = "find the program with `fairlead events`, and configure it to leave these objects alone"
