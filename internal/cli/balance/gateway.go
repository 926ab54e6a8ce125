package balance

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/traefik/static"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/serving"
	"fairlead/internal/process"
	"fairlead/internal/process/standalone"

	"github.com/spf13/cobra"
)

// NewGateway returns the command gateway.
func NewGateway(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "gateway",
		Short: "Route HTTP requests to containers",
		Long: "The gateway accepts HTTP and HTTPS requests, finds the router of each by its host, path and\n" +
			"other properties, and forwards it through middlewares to a server. It takes the labels, files\n" +
			"and flags of Traefik v2 and v3, so a stack changes only the image and the command.",
	}
	c.AddCommand(newGatewayTraefik(a), newGatewayCheck(a), newGatewayRouters(a), newGatewayServices(a),
		newGatewayMiddlewares(a), newGatewayCertificates(a))
	return c
}

func newGatewayTraefik(a *command.App) *cobra.Command {
	c := &cobra.Command{
		Use:   "traefik -- FLAGS…",
		Short: "Run the gateway with Traefik's flags, in the foreground",
		Long: "Run the gateway in the foreground with Traefik's flags, or else its TRAEFIK_ environment\n" +
			"variables or static file. Flags that have no effect here are reported. Objects of the\n" +
			"configuration that cannot be used are reported with the reason, and do not disturb others.\n" +
			"Instead of flags, \"healthcheck FLAGS…\" asks a running gateway at its ping, and \"version\" prints\n" +
			"the version. A link named traefik to the binary runs this command.",
		Example: "  fairlead gateway traefik -- --entrypoints.web.address=:8080 --providers.docker\n" +
			"  fairlead gateway traefik -- --entrypoints.web.address=:8080 --providers.file.directory=/etc/gateway\n" +
			"  fairlead gateway traefik -- healthcheck --ping",
		Args: command.Arguments(cobra.ArbitraryArgs),
		RunE: func(c *cobra.Command, args []string) error {
			if done, err := runWord(c.Context(), a, args); done {
				return err
			}
			settings, notes, err := static.Read(args, os.Environ())
			if err != nil {
				return command.Usage(err)
			}
			for _, n := range notes {
				a.Err.Note("%s", n)
			}
			for _, n := range gateway.Unused(settings) {
				a.Err.Note("%s", n)
			}
			if len(settings.EntryPoints) == 0 {
				return command.Usage(errors.New("the gateway needs an entry point, e.g. --entrypoints.web.address=:80"))
			}
			log, file, err := process.GatewayLogger(settings, a.Log)
			if err != nil {
				return command.Usage(err)
			}
			slog.SetDefault(log) // for the stacks of objects that panic
			opt := serving.Options{Stdout: os.Stdout, Stderr: file, Log: log}
			if err := standalone.Run(c.Context(), settings, opt); err != nil {
				return fmt.Errorf("run the gateway: %w", err)
			}
			return command.Exit{Code: command.ExitOK} // a signal is the normal end
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return command.Usage(fmt.Errorf("%w: write -- before Traefik's flags", err))
	})
	return c
}
