package process

import (
	"log/slog"
	"path/filepath"
	"testing"

	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
	"fairlead/internal/store"
)

// TestDockerSocketOf checks that each daemon serves Docker at the path of the previous
// one, as long as there are networks of Docker.
func TestDockerSocketOf(t *testing.T) {
	dir := t.TempDir()
	files, err := store.OpenFile(store.Places{State: filepath.Join(dir, "state"), Run: filepath.Join(dir, "run")})
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	log := slog.New(slog.DiscardHandler)
	is := func(what string, opt Options, want string) {
		t.Helper()
		opt.Log = log
		if got, err := dockerSocketOf(opt, files); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", what, got, err, want)
		}
	}
	is("without networks of Docker", Options{IdleExit: true}, "")
	network := model.Network{Name: "docker-web", Driver: model.DriverBridge, Origin: model.FromDocker}
	if err := files.SaveDesired(model.Desired{Networks: []model.Network{network}}); err != nil {
		t.Fatal(err)
	}
	is("without a stored path", Options{IdleExit: true}, docker.Socket)
	is("with --docker-socket", Options{Docker: "/run/x.sock"}, "/run/x.sock")
	is("with a stored path", Options{IdleExit: true}, "/run/x.sock")
	is("with an empty --docker-socket", Options{NoDocker: true}, "")
}
