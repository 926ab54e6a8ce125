package doctor

import (
	"fmt"

	"fairlead/internal/explain/ports"
)

// ended reports published ports of sandboxes that have ended. A daemon removes
// them, so they exist only while none runs.
func ended(h Host) []Finding {
	all := h.portsThat(func(p ports.Port) bool { return p.Ended })
	if len(all) == 0 {
		return nil
	}
	return []Finding{{Severity: Problem,
		Seen: fmt.Sprintf("published ports belong to sandboxes that have ended: %s", names(all)),
		Why:  "no process answers there, and no other program can have the ports; the daemon, which removes them, does not run",
		Fix:  startDaemon}}
}
