package command

import (
	"errors"
	"testing"
)

// TestDockerNamesInErrors checks that errors contain Docker's names, and that the
// original error can be unwrapped.
func TestDockerNamesInErrors(t *testing.T) {
	n := DockerNames{Networks: map[string]string{"docker-0123456789ab": "front"},
		Containers: map[string]string{"docker-ba9876543210": "nginx"}}
	cause := errors.New("publish 8080/tcp: endpoint docker-ba9876543210 has it on docker-0123456789ab, and docker-ffffffffffff is unknown")
	err := n.error(cause)
	if want := "publish 8080/tcp: endpoint nginx has it on front, and docker-ffffffffffff is unknown"; err.Error() != want || !errors.Is(err, cause) {
		t.Errorf("got %q, want %q", err, want)
	}
}
