package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"fairlead/internal/cli/command"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/agent"

	"github.com/spf13/cobra"
)

// agentPort is the port on which agents listen by default.
const agentPort = "5210"

// agentFlags are the flags of `lab agent`.
type agentFlags struct {
	listen, link string
	ssh          bool
}

func newLabAgent(a *command.App) *cobra.Command {
	var flags agentFlags
	c := &cobra.Command{
		Use:   "agent {--expose LINK | --ssh}",
		Short: "Let a laboratory on another machine use this one",
		Long: "Listen for a laboratory on another machine, and build its hosts in network namespaces of this one.\n" +
			"Each host gets a macvlan on the link that --expose names; nothing else of this machine is used. The\n" +
			"agent prints a token, which `fairlead lab run --server HOST=TOKEN` needs and which is valid for one\n" +
			"laboratory. When the laboratory's connection ends, the agent removes everything and prints another token.\n" +
			"`fairlead lab run --ssh HOST` copies fairlead to HOST and runs `fairlead lab agent --ssh` there.",
		Example: "  fairlead lab agent --expose eth0\n  fairlead lab agent --expose eth1 --listen 192.0.2.10:5210",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if flags.ssh {
				if err := flags.ofSession(os.Getenv("SSH_CONNECTION"), c.Flags().Changed("listen")); err != nil {
					return command.Usage(err)
				}
			}
			if flags.link == "" {
				return command.Usage(errors.New("expose: name the link to the other machine, e.g. --expose eth0"))
			}
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("an agent creates network namespaces: run it as root"))
			}
			return runAgent(a, c, flags)
		},
	}
	c.Flags().StringVar(&flags.listen, "listen", ":"+agentPort, "address and port for laboratories; an empty address "+
		"means all")
	c.Flags().StringVar(&flags.link, "expose", "", "link whose macvlans the hosts of a laboratory get, e.g. eth0")
	c.Flags().BoolVar(&flags.ssh, "ssh", false, "listen on the address of this SSH session, expose the link of the route "+
		"to its client, serve one laboratory, and end when standard input does")
	return c
}

// ofSession sets the flags that are not given to those of an SSH session. sshd(8)
// describes SSH_CONNECTION.
func (f *agentFlags) ofSession(connection string, listen bool) error {
	words := strings.Fields(connection)
	if len(words) != 4 {
		return errors.New("ssh: this is no SSH session: the environment variable SSH_CONNECTION is not set")
	}
	client, err := netip.ParseAddr(words[0])
	if err != nil {
		return fmt.Errorf("ssh: SSH_CONNECTION: %w", err)
	}
	if !listen {
		f.listen = net.JoinHostPort(words[2], agentPort)
	}
	if f.link != "" {
		return nil
	}
	if f.link, err = kernel.LinkTo(client); err != nil {
		return fmt.Errorf("find this machine's link to %s: %w: name the link, as in ssh://HOST/eth0", client, err)
	}
	return nil
}

func runAgent(a *command.App, c *cobra.Command, flags agentFlags) error {
	if _, err := kernel.DescribeLink(flags.link); err != nil {
		return command.Usage(fmt.Errorf("expose: %w", err))
	}
	if _, err := kernel.ProbeWithoutPrograms(); err != nil {
		return err
	}
	sweeper, err := agent.StartSweeper()
	if err != nil {
		return err
	}
	defer sweeper.Close()
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", flags.listen)
	if err != nil {
		return command.Usage(fmt.Errorf("listen: %w: if another agent uses the address, end it or use its token", err))
	}
	served, err := agent.New(agent.Options{Link: flags.link, Version: a.Version, Probe: kernel.ProbeFor,
		Once:   flags.ssh,
		Issued: func(t agent.Token) { printToken(a, l.Addr(), flags.link, t) },
		Log:    func(format string, args ...any) { a.Err.Note("fairlead: "+format, args...) }})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if flags.ssh {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // any error is the end too
			cancel()
		}()
	}
	if err := served.Serve(ctx, l); err != nil {
		return err
	}
	return command.Exit{Code: command.ExitOK} // a signal is the normal end
}

func printToken(a *command.App, at net.Addr, link string, t agent.Token) {
	if a.Output == "json" {
		_ = a.Out.JSONLine(agent.IssuedToken{Listen: at.String(), Link: link, Token: t.String()})
		return
	}
	_ = a.Out.Lines(fmt.Sprintf("listening on %s, link %s, token for the next laboratory:", at, link), t.String())
}
