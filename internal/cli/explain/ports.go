package explain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/daemon/stored"
	"fairlead/internal/explain/ports"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/examine"
	"fairlead/internal/model"
	"fairlead/internal/process"
	"fairlead/internal/store"
	"fairlead/internal/wording"

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
	h, err := examiner(r).Host(ctx)
	return portList{h.Ports, wording.Unpublished(h.Attachments), h.Unseen, h.RulesUnread}, err
}

// examiner returns what reads this host, and asks the daemon of the command.
func examiner(r *command.Remote) examine.Examiner {
	opt := process.Beside(r.Socket, admin.Socket)
	return examine.Examiner{Daemon: admin.NewClient(r.Socket), Pins: process.Pins(opt),
		Stored: func() ([]api.View, error) { return storedViews(opt) }}
}

// storedViews returns the attachments that the last daemon has stored, none if it has
// stored nothing.
func storedViews(opt process.Options) ([]api.View, error) {
	w, err := store.ReadDesired(store.Places{State: opt.State, Run: opt.Run})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return stored.Views(w), err
}

func printPorts(r *command.Remote, list portList) error {
	if r.Output == "json" {
		return r.JSON(list)
	}
	rows := [][]string{{"PORT", "ADDRESS", "PROCESS", "CONTAINER", "NETWORK", "MODE", "TO", "REACHED FROM", "FIREWALL"}}
	for _, p := range list.Ports {
		rows = append(rows, wording.PortRow(p))
	}
	return r.Tabled(rows)
}

// printUnseen prints what could not be read, and why.
func printUnseen(a *command.App, all []string) {
	for _, u := range all {
		a.Err.Note("fairlead: not examined: %s", u)
	}
}
