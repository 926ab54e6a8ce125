package explain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/explain/doctor"
	"fairlead/internal/explain/facts"
	"fairlead/internal/explain/flow"
	"fairlead/internal/explain/flow/hostview"
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/rules"
	"fairlead/internal/model"
	"fairlead/internal/process"
	"fairlead/internal/sandbox"
	"fairlead/internal/store"

	"github.com/spf13/cobra"
)

// portList is the output of `fairlead ports`.
type portList struct {
	Ports []ports.Port `json:"ports"`
	// Failed lists ports that are not published, and why.
	Failed []string `json:"failed,omitempty"`
	// Unseen lists what could not be read, and why.
	Unseen []string `json:"unseen,omitempty"`

	rulesUnread bool
}

// NewPorts returns the command `fairlead ports`.
func NewPorts(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var proto string
	c := &cobra.Command{
		Use:   "ports [PORT]",
		Short: "Show the owner of each port of this host, and who can reach it",
		Long: "Show every listening or published port: its process and container, the mode in which it is\n" +
			"published, and from where it can be reached. A container's port is one line, also if\n" +
			"docker-proxy, a NAT rule and an eBPF program all forward to it.\n\n" +
			"Modes: host (a socket of this host); proxy, nat, ebpf and socket (Fairlead's publish modes);\n" +
			"docker nat and docker-proxy; other nat (another program's DNAT); and for virtual services\n" +
			"ebpf service, nft service and ipvs service, with the real servers that get new connections.\n\n" +
			"FIREWALL shows what the rules for this host's own ports do with packets from the LAN: none,\n" +
			"lets in, drops, depends (on the client), bypassed if the rules would drop the packets but\n" +
			"packets to this port do not pass them, or unknown if the rules could not be read, e.g. without\n" +
			"root. A ? marks what the rules do not decide. Routers and firewalls beyond this host are not\n" +
			"considered.\n\n" +
			"Neither a daemon nor Docker is needed. Without a daemon, a published port whose\n" +
			"sandbox has ended is marked (ended) and reached from nowhere, and one whose sandbox\n" +
			"is not stored has a ?. If nothing uses the given PORT, the exit code is 1. It is 3 if rules\n" +
			"could not be read, e.g. without root, or if PORT may be used by what could not be examined.",
		Example: "  fairlead ports\n  fairlead ports 8080\n  fairlead ports --protocol udp -o json",
		Args:    command.Arguments(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			keep, err := portFilter(args, proto)
			if err != nil {
				return command.Usage(err)
			}
			list, err := listPorts(r, c.Context())
			if err != nil {
				return err
			}
			all := list.Ports
			list.Ports = slices.DeleteFunc(slices.Clone(all), func(p ports.Port) bool { return !keep(p) })
			none := len(args) > 0 && len(list.Ports) == 0
			if r.Output != "json" {
				for _, f := range list.Failed {
					r.Err.Note("fairlead: not published: %s", f)
				}
				printUnseen(r.App, list.Unseen)
			}
			if r.Output == "json" || !none { // an empty table would be only its header
				if err := printPorts(r, list); err != nil {
					return err
				}
			}
			if none {
				return unused(list, all, args[0], model.Proto(proto))
			}
			return unexamined(list)
		},
	}
	r.Flags(c)
	c.Flags().StringVar(&proto, "protocol", "", "show only this protocol: tcp or udp (default: both)")
	// It fails only for an unknown flag or one that has a completion already.
	_ = c.RegisterFlagCompletionFunc("protocol",
		cobra.FixedCompletions([]string{"tcp", "udp"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// unused returns an error which says that nothing uses the port, with the protocol if that was
// given. all are the ports of both protocols.
func unused(list portList, all []ports.Port, port string, proto model.Proto) error {
	socket, also := "socket listens", ""
	if proto != "" {
		wanted, _ := model.ParsePortRange(port) // portFilter has returned the error
		if slices.ContainsFunc(all, func(p ports.Port) bool { return p.Ports.Overlaps(wanted) }) {
			also = fmt.Sprintf(". It is in use over %s", strings.ToUpper(string(otherProto[proto])))
		}
		port += "/" + string(proto)
	}
	if proto == model.UDP {
		socket = "UDP socket is bound"
	}
	if len(list.Unseen) > 0 {
		return command.Exit{Code: command.ExitUnexamined, Why: fmt.Errorf(
			"whether port %s is in use is unknown: what was examined does not use it%s", port, also)}
	}
	return fmt.Errorf("port %s is not in use: no %s there, and no rule or program forwards it%s", port, socket, also)
}

var otherProto = map[model.Proto]model.Proto{model.TCP: model.UDP, model.UDP: model.TCP}

// unexamined returns an error if the list may lack ports.
func unexamined(list portList) error {
	if !list.rulesUnread {
		return nil
	}
	return command.Exit{Code: command.ExitUnexamined, Why: errors.New(
		"ports may be missing: the host's firewall and NAT rules could not be read")}
}

// portFilter parses PORT and --protocol and returns a filter for ports.
func portFilter(args []string, proto string) (func(ports.Port) bool, error) {
	if proto != "" && proto != string(model.TCP) && proto != string(model.UDP) {
		return nil, fmt.Errorf("--protocol %q: want tcp or udp", proto)
	}
	wanted := model.PortRange{First: 1, Last: 65535}
	if len(args) > 0 {
		var err error
		if wanted, err = model.ParsePortRange(args[0]); err != nil {
			return nil, err
		}
	}
	return func(p ports.Port) bool {
		return p.Ports.Overlaps(wanted) && (proto == "" || string(p.Proto) == proto)
	}, nil
}

func listPorts(r *command.Remote, ctx context.Context) (portList, error) {
	h, err := gather(r, ctx)
	return portList{h.Ports, unpublished(h.Attachments), h.Unseen, h.RulesUnread}, err
}

// unpublished returns one text per attachment or port that is not published, with
// the reason. An attachment with an invalid label has no ports.
func unpublished(all []api.View) []string {
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

// gather reads what ports and doctor need. Without a daemon, the attachments are
// those that the last one has stored.
func gather(r *command.Remote, ctx context.Context) (h doctor.Host, err error) {
	host, err := kernel.Open("", kernel.Options{Pins: process.Pins(process.Beside(r.Socket, admin.Socket))})
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if h.Facts, err = facts.Gather(ctx, host, sandbox.New()); err != nil {
		return h, err
	}
	asked := askDaemon(r, ctx, &h)
	if command.Gone(asked) && os.Geteuid() == 0 {
		var stored error
		if h.Attachments, stored = storedViews(r); errors.As(stored,
			new(*store.InUseError)) { // a daemon has started meanwhile
			asked = askDaemon(r, ctx, &h)
		}
		if command.Gone(asked) && stored != nil {
			h.Unseen = append(h.Unseen, "the stored state: "+stored.Error())
		}
	}
	if h.Daemon = !command.Gone(asked); h.Daemon && asked != nil {
		h.Unseen = append(h.Unseen, "the daemon's state: "+asked.Error())
	}
	if os.Geteuid() != 0 {
		h.Ports = ports.List(h.Facts, h.Attachments, h.Balanced)
		return h, nil
	}
	return h, listAsked(host, &h)
}

// listAsked lists the ports, and follows a flow from each place to each port.
func listAsked(host *kernel.Host, h *doctor.Host) (err error) {
	balanced := make([]flow.Known, len(h.Balanced))
	for i, v := range h.Balanced {
		balanced[i] = known(v)
	}
	world, err := hostview.New(host, viewOptions(h.Containers, h.Attachments, balanced))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	h.Ports = ports.ListAsked(h.Facts, h.Attachments, h.Balanced,
		func(f flow.Flow) (flow.Explanation, error) { return flow.Explain(world.Facts(), f) })
	return nil
}

// askDaemon asks the daemon for what it knows.
func askDaemon(r *command.Remote, ctx context.Context, h *doctor.Host) (err error) {
	client := admin.NewClient(r.Socket)
	if h.Attachments, err = client.Attachments(ctx); err != nil {
		return err
	}
	networks, err := admin.ListNetworks.Do(ctx, client)
	if err != nil {
		return err
	}
	h.Unavailable = networks.Unavailable
	if h.Events, err = client.Events(ctx); err != nil {
		return err
	}
	if h.Balanced, err = client.Services(ctx); err != nil {
		return err
	}
	h.Now = time.Now()
	status, err := admin.ShowCluster.Do(ctx, client)
	if err == nil {
		h.Cluster = &status
	}
	if api.CodeOf(err) == api.NotFound { // the host belongs to no cluster
		return nil
	}
	return err
}

// storedViews returns the attachments that the last daemon has stored, none if it has
// stored nothing.
func storedViews(r *command.Remote) ([]api.View, error) {
	opt := process.Beside(r.Socket, admin.Socket)
	w, err := store.ReadDesired(store.Places{State: opt.State, Run: opt.Run})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return stored.Views(w), err
}

// owner returns the container of an attachment, or the attachment's name.
func owner(v api.View) string {
	if strings.HasPrefix(v.Ref, string(sandbox.Container)+":") {
		return v.Ref
	}
	return v.Name
}

func printPorts(r *command.Remote, list portList) error {
	if r.Output == "json" {
		return r.JSON(list)
	}
	rows := [][]string{{"PORT", "ADDRESS", "PROCESS", "CONTAINER", "NETWORK", "MODE", "TO", "REACHED FROM", "FIREWALL"}}
	for _, p := range list.Ports {
		process, container := "", p.Sandbox
		if p.Process != nil {
			process = fmt.Sprintf("%s (%d)", p.Process.Command, p.Process.PID)
		}
		if c := p.Container; c != nil {
			container = c.Name
			if c.Name == "" {
				container = c.ID
			}
		}
		if p.Ended {
			container += " (ended)"
		}
		if s := p.Service; s != nil && s.Name != "" {
			container = "service " + s.Name
		}
		rows = append(rows, []string{fmt.Sprintf("%s/%s", p.Ports, p.Proto), addressesText(p.Addresses),
			command.OrDash(process), command.OrDash(container),
			command.OrDash(p.Network), modesText(p.Modes), command.OrDash(toText(p)), reachText(p.Reaches()),
			firewallText(p.Reaches())})
	}
	return r.Tabled(rows)
}

// printUnseen prints what could not be read, and why.
func printUnseen(a *command.App, all []string) {
	for _, u := range all {
		a.Err.Note("fairlead: not examined: %s", u)
	}
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
	return command.OrDash(strings.Join(from, ", "))
}

func firewallText(all []ports.Reach) string {
	texts := make([]string, len(all))
	for i, r := range all {
		texts[i] = string(r.Firewall)
	}
	return command.OrDash(strings.Join(byFamily(texts), ", "))
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
