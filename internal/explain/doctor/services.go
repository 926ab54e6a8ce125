package doctor

import (
	"fmt"
	"slices"

	"fairlead/internal/daemon"
	"fairlead/internal/escape"
	"fairlead/internal/kernel"
)

// services reports virtual services that do not do what was asked.
func services(h Host) []Finding {
	var all []Finding
	for _, s := range h.Balanced {
		f := Finding{Severity: Problem, Fix: "fairlead service show " + escape.Shell(s.Name) + " tells what the last check of each real server found: mend that, or name a sorry server"}
		switch {
		case s.Problem != "":
			f.Seen = fmt.Sprintf("service %s has failed: %s", s.Name, s.Problem)
			f.Why = "nobody balances for its clients"
			f.Fix = "do what the message says; or give the service up: fairlead service rm " + escape.Shell(s.Name)
		case s.Status == daemon.ServiceDown && len(s.Servers) > 0 && !slices.ContainsFunc(s.Servers, func(r daemon.RealView) bool { return r.State == daemon.RealDown }):
			f.Severity, f.Seen = Warning, fmt.Sprintf("of service %s, every real server drains or weighs nothing", s.Name)
			f.Why = "nothing has failed, and yet its new clients are refused"
			f.Fix = fmt.Sprintf("fairlead service enable %s REAL, or service set with a weight", escape.Shell(s.Name))
		case s.Status == daemon.ServiceDown && len(s.Servers) == 0:
			f.Severity, f.Seen = Warning, fmt.Sprintf("service %s has no real server", s.Name)
			f.Why = "its clients are refused"
			f.Fix = fmt.Sprintf("fairlead service set %s --real ADDRESS:PORT, or start what its selectors name", escape.Shell(s.Name))
		case s.Status == daemon.ServiceDown:
			f.Seen = fmt.Sprintf("of service %s, fewer real servers are up than its quorum of %d (%s)", s.Name, max(s.Quorum, 1), standing(s))
			f.Why = "without a sorry server, its clients are refused once nobody is left"
		case s.Status == daemon.ServicePanics:
			f.Severity, f.Seen = Warning, fmt.Sprintf("of service %s, so few real servers are up (%s) that the checks are not believed", s.Name, standing(s))
			f.Why = "all real servers get clients, also those that fail; if the checks are right, part of the clients fail"
		default:
			continue
		}
		all = append(all, f)
	}
	return all
}

// standing counts a service's real servers that are up.
func standing(s daemon.ServiceView) string {
	up := 0
	for _, r := range s.Servers {
		if r.State == daemon.RealUp {
			up++
		}
	}
	return fmt.Sprintf("%d of %d", up, len(s.Servers))
}

// called is the name of a service in the kernel.
func called(s kernel.InstalledService) string {
	if s.Service != "" {
		return "service " + s.Service
	}
	at := s.Frontends.List()
	return fmt.Sprintf("the virtual service at %s/%s", at[0], s.Proto)
}
