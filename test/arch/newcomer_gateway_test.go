package arch_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// testTrialGateway runs the gateway with the provider trial, whose file has a router with the middleware trial.
func testTrialGateway(t *testing.T, command string) {
	t.Helper()
	routes, err := filepath.Abs("testdata/routes.json")
	if err != nil {
		t.Fatal(err)
	}
	at := startTrialGateway(t, command, "--providers.trial.path="+routes)
	answer, err := http.Get("http://" + at["web"] + "/page")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if got := answer.Header.Get("X-Trial"); answer.StatusCode != http.StatusOK || got != "by the trial" {
		t.Errorf("%s with X-Trial %q, want the response with the middleware's field", answer.Status, got)
	}
	var overview struct{ Providers []string }
	var middlewares []struct{ Name, Type, Provider, Status string }
	for path, to := range map[string]any{"overview": &overview, "http/middlewares": &middlewares} {
		answer, err := http.Get("http://" + at["traefik"] + "/api/" + path)
		if err != nil {
			t.Fatal(err)
		}
		err = json.NewDecoder(answer.Body).Decode(to)
		if answer.Body.Close(); err != nil {
			t.Fatalf("/api/%s: %v", path, err)
		}
	}
	if !slices.Equal(overview.Providers, []string{"Trial"}) {
		t.Errorf("the API shows the providers %q, want Trial", overview.Providers)
	}
	if len(middlewares) != 1 || middlewares[0].Type != "trial" || middlewares[0].Provider != "trial" ||
		middlewares[0].Status != "enabled" {
		t.Errorf("the API shows the middlewares %+v, want mark of type and provider trial", middlewares)
	}
}

// startTrialGateway starts a gateway until the end of the test, and returns the addresses of its entry points.
func startTrialGateway(t *testing.T, command, flag string) map[string]string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, "gateway", "traefik", "--",
		"--entrypoints.web.address=127.0.0.1:0", "--entrypoints.traefik.address=127.0.0.1:0", "--api.insecure=true",
		"--ping=true", flag)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() { <-ended })
	at := map[string]string{}
	lines := bufio.NewReader(log)
	for len(at) < 2 {
		line, err := lines.ReadString('\n')
		if err != nil {
			close(ended)
			t.Fatalf("the gateway has ended: %v", err)
		}
		if _, entry, ok := strings.Cut(line, `msg=serving "entry point"=`); ok {
			name, address, _ := strings.Cut(strings.TrimSpace(entry), " address=")
			at[name] = address
		}
	}
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, lines)
		_ = cmd.Wait() // a signal has ended it
	}()
	return at
}
