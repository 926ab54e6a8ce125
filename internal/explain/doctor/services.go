package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/api"
	"fairlead/internal/escape"
	"fairlead/internal/kernel/inspect"
)

// services reports virtual services that failed, or have too few real servers up.
func services(h Host) []Finding {
	var all []Finding
	for _, s := range h.Balanced {
		f := Finding{Severity: Problem, Fix: "fairlead service show " + escape.Shell(s.Name) +
			" shows the result of each real server's last check: repair the servers, or add a sorry server"}
		isDown := func(r api.RealView) bool { return r.State == api.RealDown }
		switch {
		case s.Problem != "":
			f.Seen = fmt.Sprintf("service %s failed: %s", s.Name, s.Problem)
			f.Why = "its clients are not served"
			f.Fix = "do what the message says; or remove the service: fairlead service rm " + escape.Shell(s.Name)
		case s.Status == api.ServiceDown && len(s.Servers) > 0 && !slices.ContainsFunc(s.Servers, isDown):
			f.Severity, f.Seen = Warning, fmt.Sprintf("every real server of service %s drains or has weight 0", s.Name)
			f.Why = "no real server is down, but new clients are refused"
			f.Fix = fmt.Sprintf("fairlead service enable %s REAL, or fairlead service set with a weight",
				escape.Shell(s.Name))
		case s.Status == api.ServiceDown && len(s.Servers) == 0:
			f.Severity, f.Seen = Warning, fmt.Sprintf("service %s has no real server", s.Name)
			f.Why = "its clients are refused"
			f.Fix = fmt.Sprintf("fairlead service set %s --real ADDRESS:PORT, or start containers that its selectors match", escape.Shell(s.Name))
		case s.Status == api.ServiceDown:
			f.Seen = fmt.Sprintf("service %s has %s real servers up, fewer than its quorum of %d", s.Name, upCount(s),
				max(s.Quorum, 1))
			f.Why = "without a sorry server, its clients are refused when no real server is left"
		case s.Status == api.ServicePanics:
			f.Severity, f.Seen = Warning,
				fmt.Sprintf("service %s ignores its checks, because only %s real servers are up", s.Name, upCount(s))
			f.Why = "all real servers get clients, also those that fail their checks; if the checks are right, part of the clients fail"
		default:
			continue
		}
		all = append(all, f)
	}
	return all
}

// upCount counts a service's real servers that are up, e.g. "1 of 3".
func upCount(s api.ServiceView) string {
	up := 0
	for _, r := range s.Servers {
		if r.State == api.RealUp {
			up++
		}
	}
	return fmt.Sprintf("%d of %d", up, len(s.Servers))
}

// called names a service in the kernel.
func called(s inspect.InstalledService) string {
	if s.Service != "" {
		return "service " + s.Service
	}
	at := s.Frontends
	return fmt.Sprintf("the virtual service at %s/%s", at[0], s.Proto)
}
