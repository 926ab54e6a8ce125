package service

import (
	"log/slog"
	"path/filepath"
	"testing"

	"fairlead/internal/frontend/docker"
	"fairlead/internal/model"
	"fairlead/internal/store"
)

// TestDockerSocketOf has every next daemon serve Docker where the last one did,
// as long as there are networks of Docker's.
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
	is("without networks of Docker's", Options{IdleExit: true}, "")
	network := model.Network{Name: "docker-web", Driver: model.DriverBridge, Origin: model.FromDocker}
	if err := files.SaveDesired(model.Desired{Networks: []model.Network{network}}); err != nil {
		t.Fatal(err)
	}
	is("of an older version", Options{IdleExit: true}, docker.Socket)
	is("where it is told", Options{Docker: "/run/x.sock"}, "/run/x.sock")
	is("where the last one was", Options{IdleExit: true}, "/run/x.sock")
	is("nowhere, by its user's wish", Options{NoDocker: true}, "")
}
