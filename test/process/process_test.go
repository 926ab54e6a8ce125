package process_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"fairlead/internal/child"
	"fairlead/test/process"
)

// order contains the text that the process echo prints, and whether the process fails when its
// input ends.
type order struct {
	Say  string
	Fail bool
}

func echo(do order) error {
	process.Ready()
	fmt.Println(do.Say)
	process.Idle()
	if do.Fail {
		return errors.New("the order is to fail")
	}
	return nil
}

func TestMain(m *testing.M) {
	child.Dispatch(child.Roles{"idle": process.Idle, "echo": process.Main(echo)})
	os.Exit(m.Run())
}

func TestIdleEndsWithItsInput(t *testing.T) {
	p := process.Run(t, "idle", child.Place{})
	p.In.Close()
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestProcessExecutesOrder(t *testing.T) {
	for _, fail := range []bool{false, true} {
		p := process.Start(t, "echo", order{Say: "hello", Fail: fail}, child.Place{})
		if said, err := p.Out.ReadString('\n'); said != "hello\n" {
			t.Errorf("the process prints %q: %v", said, err)
		}
		p.In.Close()
		var exit *exec.ExitError
		if err := p.Wait(); (err != nil) != fail || fail && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
			t.Errorf("the process exits with: %v", err)
		}
	}
}
