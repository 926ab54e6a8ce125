package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"fairlead/internal/model"
	"fairlead/internal/workload"

	"github.com/spf13/cobra"
)

// commandExit is the exit code of a command that was run: it becomes ours.
type commandExit int

func (e commandExit) Error() string { return fmt.Sprintf("the command exited with %d", int(e)) }

// policies are what --unlisted takes.
var policies = []string{string(model.UnlistedLoopback), string(model.UnlistedDeny), string(model.UnlistedAllow)}

func newRun() *cobra.Command {
	var ports []string
	var name, unlisted string
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARG…]",
		Short: "Run a command on the host's network with published ports",
		Long: "Run a command in the host's own network namespace, with published ports. It binds\n" +
			"the port that it wants and gets the host port that it was given, so several can\n" +
			"bind port 80 side by side. No packet costs anything: they are the host's own sockets.\n" +
			"What the command binds and --publish does not list is moved to the loopback address.\n\n" +
			"Signals go to the command, and its exit code is ours. When it ends, so does\n" +
			"everything that it has left running.",
		Example: "  fairlead run -p 8080:80 -- nginx -g 'daemon off;'\n" +
			"  fairlead run -p 127.0.0.1:5353:53/udp -p 127.0.0.1:5353:53 -- dnsmasq --keep-in-foreground\n" +
			"  fairlead run -p '[::]:9000-9010:8000-8010' --unlisted deny -- ./server",
		RunE: func(_ *cobra.Command, args []string) error {
			opt, err := runOptions(ports, name, unlisted, args)
			if err != nil {
				return usage(err)
			}
			code, err := workload.Run(opt)
			if err != nil {
				return err
			}
			return commandExit(code)
		},
	}
	f := c.Flags()
	f.SetInterspersed(false) // what follows the command is its own
	f.StringArrayVarP(&ports, "publish", "p", nil, "publish a port or a range: [ADDRESS:]HOST:OWN[/tcp|/udp] (repeatable)")
	f.StringVar(&unlisted, "unlisted", string(model.UnlistedLoopback), "what to do with binds to other ports: "+strings.Join(policies, ", "))
	f.StringVar(&name, "name", "", "name of the workload in messages (default: the command's)")
	// It fails only for a flag that is not there or completes already.
	_ = c.RegisterFlagCompletionFunc("unlisted", cobra.FixedCompletions(policies, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func runOptions(ports []string, name, unlisted string, command []string) (workload.Options, error) {
	opt := workload.Options{Name: name, Unlisted: model.Unlisted(unlisted), Command: command}
	if len(command) == 0 {
		return opt, errors.New("name the command to run after --")
	}
	if len(ports) == 0 {
		return opt, errors.New("publish a port, e.g. -p 8080:80, or run the command without us")
	}
	for _, text := range ports {
		p, err := parsePublish(text)
		if err != nil {
			return opt, fmt.Errorf("publish %s: %w", text, err)
		}
		opt.Publishes = append(opt.Publishes, p)
	}
	if os.Geteuid() != 0 {
		return opt, errors.New("root is needed to attach eBPF programs: run as root, e.g. with sudo")
	}
	return opt, nil
}

// parsePublish reads [ADDRESS:]HOST:OWN[/PROTOCOL], an IPv6 address in
// brackets, as docker does.
func parsePublish(text string) (p model.Publish, err error) {
	text, proto, found := strings.Cut(text, "/")
	p.Proto = model.TCP
	if found {
		p.Proto = model.Proto(proto)
	}
	own := strings.LastIndexByte(text, ':')
	if own < 0 {
		return p, errors.New("want a host port and the command's own, e.g. 8080:80")
	}
	if p.Ports, err = model.ParsePortRange(text[own+1:]); err != nil {
		return p, err
	}
	text = text[:own]
	host := strings.LastIndexByte(text, ':')
	if p.HostPorts, err = model.ParsePortRange(text[host+1:]); err != nil {
		return p, err
	}
	if host < 0 {
		return p, nil
	}
	address := text[:host]
	if inside, ok := strings.CutPrefix(address, "["); ok {
		address = strings.TrimSuffix(inside, "]")
	}
	if p.HostAddr, err = netip.ParseAddr(address); err != nil {
		return p, fmt.Errorf("host address: %w", err)
	}
	return p, nil
}
