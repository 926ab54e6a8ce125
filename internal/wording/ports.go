package wording

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/explain/ports"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
)

// PortRow returns the cells of a port: PORT, ADDRESS, PROCESS, CONTAINER, NETWORK, MODE, TO, REACHED FROM, FIREWALL.
func PortRow(p ports.Port) []string {
	process := ""
	if p.Process != nil {
		process = fmt.Sprintf("%s (%d)", p.Process.Command, p.Process.PID)
	}
	return []string{fmt.Sprintf("%s/%s", p.Ports, p.Proto), addressesText(p.Addresses), OrDash(process),
		OrDash(containerText(p)), OrDash(p.Network), modesText(p.Modes), OrDash(toText(p)), reachText(p.Reaches()),
		firewallText(p.Reaches())}
}

// containerText names the container, sandbox or service that a port reaches.
func containerText(p ports.Port) string {
	container := p.Sandbox
	if c := p.Container; c != nil {
		container = cmp.Or(c.Name, c.ID)
	}
	if p.Ended {
		container += " (ended)"
	}
	if s := p.Service; s != nil && s.Name != "" {
		container = "service " + s.Name
	}
	return container
}

// Unpublished returns one text per attachment or port that is not published, with
// the reason. An attachment with an invalid label has no ports.
func Unpublished(all []api.View) []string {
	var failed []string
	for _, v := range all {
		if v.Status == api.Broken && (len(v.Publishes) > 0 || v.Network == api.HostNetwork) {
			failed = append(failed, fmt.Sprintf("%s: %s", owner(v), v.Problem))
		}
		for _, p := range v.Publishes {
			if p.Problem != "" {
				failed = append(failed, fmt.Sprintf("%s: %s", p.Publish, p.Problem))
			}
		}
	}
	return failed
}

// owner returns the container of an attachment, or the attachment's name.
func owner(v api.View) string {
	if strings.HasPrefix(v.Ref, string(sandbox.Container)+":") {
		return v.Ref
	}
	return v.Name
}

// addressesText writes addresses, or * for all addresses of both families.
func addressesText(all []netip.Addr) string {
	if len(all) == 2 && all[0].IsUnspecified() && all[1].IsUnspecified() {
		return "*"
	}
	var texts []string
	for _, a := range all {
		if a.Is6() {
			texts = append(texts, "["+a.String()+"]")
		} else {
			texts = append(texts, a.String())
		}
	}
	return strings.Join(texts, ",")
}

func modesText(modes []ports.Mode) string {
	var texts []string
	for _, m := range modes {
		texts = append(texts, string(m))
	}
	return strings.Join(texts, " + ")
}

func toText(p ports.Port) string {
	switch {
	case p.Service != nil:
		return realsText(p.Service.Reals)
	case p.ToPorts == (model.PortRange{}):
		return ""
	case !p.To.IsValid():
		return ":" + p.ToPorts.String()
	case p.To.Is6():
		return "[" + p.To.String() + "]:" + p.ToPorts.String()
	}
	return p.To.String() + ":" + p.ToPorts.String()
}

// reachText names the places that reach a port, with a ? if that is not certain,
// and with the address family if only one family is reached.
func reachText(all []ports.Reach) string {
	var from []string
	for _, place := range []struct {
		name  string
		reach func(ports.Reach) rules.Answer
	}{
		{"loopback", func(r ports.Reach) rules.Answer { return r.Loopback }},
		{"host", func(r ports.Reach) rules.Answer { return r.Host }},
		{"containers", func(r ports.Reach) rules.Answer { return r.Containers }},
		{"LAN", func(r ports.Reach) rules.Answer { return r.LAN }},
	} {
		texts := make([]string, len(all))
		for i, r := range all {
			texts[i] = map[rules.Answer]string{rules.Yes: place.name, rules.Maybe: place.name + "?"}[place.reach(r)]
		}
		from = append(from, byFamily(texts)...)
	}
	return OrDash(strings.Join(from, ", "))
}

func firewallText(all []ports.Reach) string {
	texts := make([]string, len(all))
	for i, r := range all {
		texts[i] = string(r.Firewall)
	}
	return OrDash(strings.Join(byFamily(texts), ", "))
}

// byFamily returns the texts of IPv4 and IPv6: one text if both are the same, else
// each text that is not empty, with its family.
func byFamily(texts []string) []string {
	if len(texts) < 2 || texts[0] == texts[1] {
		return slices.DeleteFunc(texts[:1], func(s string) bool { return s == "" })
	}
	var all []string
	for i, family := range []string{"IPv4", "IPv6"} {
		if texts[i] != "" {
			all = append(all, texts[i]+" ("+family+")")
		}
	}
	return all
}

// maxListedReals is how many real servers of a service a row names.
const maxListedReals = 3

// realsText names the real servers that take new flows.
func realsText(all []netip.AddrPort) string {
	if len(all) == 0 {
		return "no real server"
	}
	var texts []string
	for _, r := range all[:min(len(all), maxListedReals)] {
		text := r.String()
		if r.Port() == 0 {
			text = r.Addr().String()
		}
		texts = append(texts, text)
	}
	if more := len(all) - maxListedReals; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ",")
}
