package measure

import (
	"errors"
	"fmt"
	"net"
	"os"

	"fairlead/internal/cli/command"
	"fairlead/internal/kernel"
	"fairlead/internal/lab/agent"

	"github.com/spf13/cobra"
)

// agentPort is the port on which agents listen by default.
const agentPort = "5210"

func newLabAgent(a *command.App) *cobra.Command {
	var listen, link string
	c := &cobra.Command{
		Use:   "agent --expose LINK",
		Short: "Let a laboratory on another machine use this one",
		Long: "Listen for a laboratory on another machine, and build its hosts in network namespaces of this one.\n" +
			"Each host gets a macvlan on the link that --expose names; nothing else of this machine is used. The\n" +
			"agent prints a token, which `fairlead lab run --server HOST=TOKEN` needs and which is valid for one\n" +
			"laboratory. When the laboratory's connection ends, the agent removes everything and prints another token.",
		Example: "  fairlead lab agent --expose eth0\n  fairlead lab agent --expose eth1 --listen 192.0.2.10:5210",
		Args:    command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if link == "" {
				return command.Usage(errors.New("expose: name the link to the other machine, e.g. --expose eth0"))
			}
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("an agent creates network namespaces: run it as root"))
			}
			return runAgent(a, c, listen, link)
		},
	}
	c.Flags().StringVar(&listen, "listen", ":"+agentPort, "address and port for laboratories; an empty address means all")
	c.Flags().StringVar(&link, "expose", "", "link whose macvlans the hosts of a laboratory get, e.g. eth0")
	return c
}

func runAgent(a *command.App, c *cobra.Command, listen, link string) error {
	if _, err := kernel.DescribeLink(link); err != nil {
		return command.Usage(fmt.Errorf("expose: %w", err))
	}
	facts, err := kernel.Probe()
	if err != nil {
		return err
	}
	sweeper, err := agent.StartSweeper()
	if err != nil {
		return err
	}
	defer sweeper.Close()
	l, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", listen)
	if err != nil {
		return command.Usage(fmt.Errorf("listen: %w", err))
	}
	served, err := agent.New(agent.Options{Link: link, Version: a.Version, Facts: facts,
		Issued: func(t agent.Token) { printToken(a, l.Addr(), link, t) },
		Log:    func(format string, args ...any) { a.Err.Note("fairlead: "+format, args...) }})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if err := served.Serve(c.Context(), l); err != nil {
		return err
	}
	return command.Exit{Code: command.ExitOK} // a signal is the normal end
}

// issuedToken is what `lab agent -o json` prints for each token.
type issuedToken struct {
	Listen string `json:"listen"`
	Link   string `json:"link"`
	Token  string `json:"token"`
}

func printToken(a *command.App, at net.Addr, link string, t agent.Token) {
	if a.Output == "json" {
		_ = a.Out.JSONLine(issuedToken{at.String(), link, t.String()})
		return
	}
	a.Out.Note("listening on %s, link %s, token for the next laboratory:\n%s", at, link, t)
}
