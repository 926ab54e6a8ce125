package connect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/kernel"
	"fairlead/internal/kernel/inspect"
	"fairlead/internal/kernel/netns"
	"fairlead/internal/model"
	"fairlead/internal/sandbox"
	"fairlead/internal/syntax"
	"fairlead/internal/wording"

	"github.com/spf13/cobra"
)

// inspection is the output of `fairlead inspect`.
type inspection struct {
	Sandbox sandbox.Sandbox `json:"sandbox"`
	inspect.Inside
	// Daemon reports whether a daemon returned the attachments.
	Daemon      bool       `json:"daemon"`
	Attachments []api.View `json:"attachments"`
}

// NewInspect returns the command `fairlead inspect`.
func NewInspect(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	c := &cobra.Command{
		Use:   "inspect SANDBOX",
		Short: "Show a sandbox's links, routes, listeners and published ports",
		Long: "Show the contents of a sandbox's network namespace, whichever program created it: links with\n" +
			"their addresses and host interfaces, routes, and listening sockets. If a daemon runs, also\n" +
			"show the sandbox's attachments, and its published ports with their modes.\n\n" + sandboxHelp,
		Example: "  fairlead inspect web\n  fairlead inspect container:web -o json",
		Args:    command.Arguments(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to enter a network namespace: run as root, e.g. with sudo"))
			}
			i, err := inspectSandbox(r, c.Context(), args[0])
			if err != nil {
				return err
			}
			if r.Output == "json" {
				return r.JSON(i)
			}
			return printInspection(r, i)
		},
	}
	r.Flags(c)
	return c
}

func inspectSandbox(r *command.Remote, ctx context.Context, text string) (i inspection, err error) {
	if i.Sandbox, err = sandbox.Resolve(ctx, text); err != nil {
		return i, err
	}
	host, err := kernel.Open("", kernel.Options{})
	if err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	if i.Inside, err = host.Inspect().Inside(i.Sandbox.Path); err != nil {
		return i, err
	}
	namespace, err := netns.Identify(i.Sandbox.Path)
	if err != nil {
		return i, err
	}
	all, err := admin.NewClient(r.Socket).Attachments(ctx)
	if admin.Gone(err) { // most of the output needs no daemon
		return i, nil
	}
	i.Daemon = true
	i.Attachments = slices.DeleteFunc(all, func(v api.View) bool { return v.Namespace != namespace })
	return i, err
}

// printInspection prints one table per kind of object, and leaves out empty ones.
func printInspection(r *command.Remote, i inspection) error {
	s := i.Sandbox
	head := s.Ref
	if s.PID != 0 && s.Kind != sandbox.Process {
		head += fmt.Sprintf("  pid %d", s.PID)
	}
	if err := r.Out.Line("%s  %s", head, s.Path); err != nil {
		return err
	}
	for _, table := range [][][]string{linkRows(i), routeRows(i), listenerRows(i), attachmentRows(i), publishRows(i)} {
		if len(table) < 2 {
			continue
		}
		if err := r.Out.Line(""); err != nil {
			return err
		}
		if err := r.Tabled(table); err != nil {
			return err
		}
	}
	if !i.Daemon {
		return r.Out.Lines("", "No daemon runs: networks and published ports are unknown.")
	}
	return nil
}

func linkRows(i inspection) [][]string {
	rows := [][]string{{"LINK", "KIND", "STATE", "MTU", "MAC", "ADDRESSES", "HOST END", "OWNER", "RECEIVED (PACKETS)",
		"SENT (PACKETS)"}}
	for _, l := range i.Links {
		state := "down"
		if l.Up {
			state = "up"
		}
		end := l.Peer
		if l.Bridge != "" {
			end += " in " + l.Bridge
		}
		var Addresses []string
		for _, a := range l.Addresses {
			Addresses = append(Addresses, a.String())
		}
		rows = append(rows, []string{l.Name, l.Kind, state, fmt.Sprint(l.MTU), wording.OrDash(l.MAC),
			wording.OrDash(strings.Join(Addresses, " ")),
			wording.OrDash(end), wording.OrDash(l.Owner), wording.Traffic(l.RxBytes, l.RxPackets),
			wording.Traffic(l.TxBytes, l.TxPackets)})
	}
	return rows
}

func routeRows(i inspection) [][]string {
	rows := [][]string{{"ROUTE", "VIA", "LINK"}}
	for _, route := range i.Routes {
		to, via := route.To.String(), ""
		if route.To.Bits() == 0 {
			to = "default"
		}
		if route.Via.IsValid() {
			via = route.Via.String()
		}
		rows = append(rows, []string{to, wording.OrDash(via), wording.OrDash(route.Link)})
	}
	return rows
}

func listenerRows(i inspection) [][]string {
	rows := [][]string{{"LISTENER", "PROTOCOL", "PROCESS"}}
	for _, l := range i.Listeners {
		rows = append(rows, []string{l.At.String(), string(l.Proto), l.Process.String()})
	}
	return rows
}

func attachmentRows(i inspection) [][]string {
	rows := [][]string{{"ATTACHMENT", "NETWORK", "DRIVER", "INTERFACE", "STATE"}}
	for _, v := range i.Attachments {
		state := string(v.Status)
		if v.Problem != "" {
			state += ": " + v.Problem
		}
		rows = append(rows, []string{v.Name, v.Network, string(v.Driver), v.InterfaceName(), state})
	}
	return rows
}

// publishRows returns one row per publish: its path as `fairlead paths` names it,
// and the process that listens at its target.
func publishRows(i inspection) [][]string {
	rows := [][]string{{"PUBLISH", "TO", "PATH", "ANSWERED BY"}}
	for _, v := range i.Attachments {
		for _, p := range v.Publishes {
			answered := i.answers(v, p.Publish)
			if p.Problem != "" {
				answered = p.Problem
			}
			rows = append(rows, []string{fmt.Sprintf("%s%s/%s", syntax.FormatHost(p.Publish), p.HostPorts, p.Proto),
				fmt.Sprintf("%s:%s", v.Name, p.Ports), fmt.Sprintf("%s+%s", v.Driver, p.Via), answered})
		}
	}
	return rows
}

// answers returns the process that listens at the target of a publish.
func (i inspection) answers(v api.View, p model.Publish) string {
	for _, l := range i.Listeners {
		if l.Proto == p.Proto && p.Ports.Overlaps(model.Port(l.At.Port())) &&
			slices.ContainsFunc(v.AllAddresses(), func(a netip.Addr) bool { return l.Answers(a) }) {
			return l.Process.String()
		}
	}
	return "no process listens"
}
