package doctor

import (
	"fmt"

	"fairlead/internal/escape"
	"fairlead/internal/syntax"
)

// attachments reports attachments and publishes that the daemon could not apply.
func attachments(h Host) []Finding {
	var all []Finding
	for _, v := range h.Attachments {
		if v.Problem != "" {
			all = append(all, Finding{Severity: Problem,
				Seen: fmt.Sprintf("attachment %s of %s is %s: %s", v.Name, v.Ref, v.Status, v.Problem),
				Why:  "the sandbox is not on its network",
				Fix:  "do what the message says; or remove the attachment: fairlead detach " + escape.Shell(v.Name)})
		}
		for _, p := range v.Publishes {
			if p.Problem != "" {
				host := fmt.Sprintf("%s%s/%s", syntax.FormatHost(p.Publish), p.HostPorts, p.Proto)
				all = append(all, Finding{Severity: Problem,
					Seen: fmt.Sprintf("publish %s failed: %s", p.Publish, p.Problem),
					Why:  "clients cannot reach the port",
					Fix: fmt.Sprintf("do what the message says; or remove the publish: fairlead unpublish %s %s",
						escape.Shell(v.Name), escape.Shell(host))})
			}
		}
	}
	return all
}
