package explain

import (
	"errors"
	"os"

	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/admin"
	"fairlead/internal/frontend/dashboard"
	"fairlead/internal/frontend/dashboard/access"
	"fairlead/internal/frontend/dashboard/chart"
	"fairlead/internal/process"

	"github.com/spf13/cobra"
)

// localDashboard is the output of `fairlead dashboard`.
type localDashboard struct {
	URL string `json:"url"`
}

// NewDashboard returns the command `fairlead dashboard`.
func NewDashboard(a *command.App) *cobra.Command {
	r := &command.Remote{App: a}
	var listen, add, tokens string
	actions := false
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Show what is wrong, since when and why, in a browser",
		Long: "Serve the dashboard on a loopback address until interrupted, and print its URL. The token in the URL\n" +
			"lets in one browser, once. The pages show what `fairlead ports`, `paths`, `service ls`, `explain`,\n" +
			"`stats`, `events`, `lab history`, `gateway` and `cluster status` print, and stay up to date. They load\n" +
			"nothing from other hosts, and work without JavaScript. To use a browser on another host, forward the\n" +
			"port with `ssh -L`, or let the daemon serve the dashboard: `fairlead daemon --dashboard`.\n\n" +
			"With --add-token, create a token for the daemon's dashboard instead: print it once, and add its hash\n" +
			"with the name to the file of `fairlead daemon --dashboard-tokens`. The daemon reads the file at each\n" +
			"request. To withdraw a token, delete its line.",
		Example: "  fairlead dashboard\n  fairlead dashboard --listen 127.0.0.1:9090 --actions\n" +
			"  fairlead dashboard --add-token alice --tokens /etc/fairlead/dashboard-tokens",
		Args: command.Arguments(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if add != "" {
				return addToken(a, tokens, add)
			}
			if os.Geteuid() != 0 {
				return command.Usage(errors.New("root is needed to ask the daemon: run as root, e.g. with sudo"))
			}
			l, token, err := access.ListenLocal(listen)
			if err != nil {
				return command.Usage(err)
			}
			url := "http://" + l.Addr().String() + "/" + token.Query()
			if r.Output == "json" {
				err = r.Out.JSONLine(localDashboard{url})
			} else {
				err = r.Out.Lines("Open " + url)
			}
			if err != nil {
				return errors.Join(err, l.Close())
			}
			client := admin.NewClient(r.Socket)
			d := dashboard.New(dashboard.Options{Daemon: client, Host: examiner(r), Charts: chart.Live(client.History),
				Actions: actions, Who: access.Who, Version: a.Version, Log: process.Logger(a.Log)})
			if err := l.Serve(c.Context(), d); err != nil {
				return err
			}
			return command.Exit{Code: command.ExitOK} // a signal is the normal end
		},
	}
	r.Flags(c)
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0",
		"loopback `ADDRESS:PORT` to listen on; port 0 means any free "+
			"port")
	c.Flags().StringVar(&add, "add-token", "",
		"create a token with this `name` for the daemon's dashboard, and print it")
	c.Flags().StringVar(&tokens, "tokens", "/etc/fairlead/dashboard-tokens", "`file` with the hashes of tokens, for "+
		"--add-token")
	c.Flags().BoolVar(&actions, "actions", false, "add buttons that drain and enable real servers and move addresses")
	return c
}

// newToken is the output of `fairlead dashboard --add-token`.
type newToken struct {
	Name  string `json:"name"`
	Token string `json:"token"`
}

func addToken(a *command.App, file, name string) error {
	token, err := access.AddToken(file, name)
	if err != nil {
		return command.Usage(err)
	}
	if a.Output == "json" {
		return a.JSON(newToken{name, token})
	}
	return a.Out.Lines(token)
}
