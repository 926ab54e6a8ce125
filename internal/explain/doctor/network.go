package doctor

import (
	"fmt"
	"maps"
	"slices"

	"fairlead/internal/api"
)

// unavailableNetworks reports networks that cannot exist on this host at present, for example because their parent is
// gone.
func unavailableNetworks(h Host) []Finding {
	var all []Finding
	for _, name := range slices.Sorted(maps.Keys(h.Unavailable)) {
		f := Finding{Severity: Warning,
			Seen: fmt.Sprintf("network %s is unavailable on this host: %s", name, h.Unavailable[name]),
			Why:  "no sandbox can be attached to it until the cause is removed",
			Fix:  "do what the message says: the daemon follows by itself; or remove the network (fairlead network rm)"}
		if slices.ContainsFunc(h.Attachments, func(v api.View) bool { return v.Network == name }) {
			f.Severity, f.Why = Problem, "its sandboxes cannot communicate through it until the cause is removed"
			f.Fix = "do what the message says: the daemon applies its attachments again by itself"
		}
		all = append(all, f)
	}
	return all
}
