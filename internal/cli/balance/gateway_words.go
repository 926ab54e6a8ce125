package balance

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"fairlead/internal/cli/command"
	"fairlead/internal/frontend/traefik/static"
	model "fairlead/internal/model/gateway"
)

// runWord runs a command of Traefik's own command line, such as `traefik healthcheck` in a
// compose file. It returns false if the arguments begin with none.
func runWord(ctx context.Context, a *command.App, args []string) (bool, error) {
	if len(args) > 0 && args[0] == "traefik" {
		args = args[1:]
	}
	if len(args) == 0 {
		return false, nil
	}
	switch args[0] {
	case "version":
		return true, a.Out.Lines("Version:      "+a.Version, "Go version:   "+runtime.Version(),
			"OS/Arch:      "+runtime.GOOS+"/"+runtime.GOARCH)
	case "healthcheck":
		settings, _, err := static.Read(args[1:], os.Environ())
		if err != nil {
			return true, command.Usage(err)
		}
		return true, checkPing(ctx, a, settings)
	}
	return false, nil
}

// checkPing asks a running gateway with the same settings at its ping.
func checkPing(ctx context.Context, a *command.App, settings model.Static) error {
	if settings.Ping == nil {
		return command.Usage(fmt.Errorf("check the gateway: its ping is not enabled: give the gateway and this command " +
			"the flag --ping"))
	}
	i := slices.IndexFunc(settings.EntryPoints, func(e model.EntryPoint) bool {
		return e.Name == settings.Ping.EntryPoint
	})
	if i < 0 {
		return command.Usage(fmt.Errorf("check the gateway: entry point %s of the ping has no address: give it with "+
			"--entrypoints.%[1]s.address", settings.Ping.EntryPoint))
	}
	at := pingURL(settings.EntryPoints[i])
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return fmt.Errorf("check the gateway: %w", err)
	}
	// The certificate is for the names of clients, not for this address.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("check the gateway: %w", err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("check the gateway: %s answers %s", at, answer.Status)
	}
	return a.Out.Lines("OK: " + at)
}

// pingURL returns the URL of the ping at the entry point.
func pingURL(e model.EntryPoint) string {
	address, _, _ := strings.Cut(e.Address, "/")
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, "80"
	}
	scheme := "http"
	if e.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port) + "/ping"
}
