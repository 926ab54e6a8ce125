package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Ready is the line that a worker prints when it has executed its order.
const Ready = "ready\n"

// Worker is a child process in a role, with pipes to it.
type Worker struct {
	*Process
	// In is the worker's standard input, and Out its standard output, which ends
	// when neither the worker nor a descendant has it open. Unlike the output of
	// exec's StdoutPipe, it can be read after the worker has ended.
	In  io.WriteCloser
	Out *bufio.Reader
	out io.Closer
}

// StartWorker starts a role in the place. Standard error is that of this process.
// When ctx ends, the worker is killed.
func StartWorker(ctx context.Context, role string, at Place) (*Worker, error) {
	cmd := Self(role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, says, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	cmd.Stdout = says
	p, err := Start(ctx, cmd, at)
	says.Close()
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	return &Worker{p, in, bufio.NewReader(out), out}, nil
}

// Order starts a role in the place, sends it the order as a line of JSON, and waits
// until it prints Ready.
func Order(ctx context.Context, role string, order any, at Place) (*Worker, error) {
	w, err := StartWorker(ctx, role, at)
	if err != nil {
		return nil, err
	}
	said := ""
	if err = json.NewEncoder(w.In).Encode(order); err == nil {
		said, err = w.Out.ReadString('\n')
	}
	if said != Ready {
		w.Close()
		return nil, fmt.Errorf("start %s: it printed %q: %w", role, said, err)
	}
	return w, nil
}

// Finish reads the worker's answer, a value of JSON, closes its input and waits until
// it has ended. If there is no answer, it kills the worker. It closes the pipes.
func (w *Worker) Finish(answer any) error {
	defer w.Close()
	if err := json.NewDecoder(w.Out).Decode(answer); err != nil {
		return fmt.Errorf("read the answer of %s: %w", w.Cmd.Args[0], err)
	}
	w.In.Close()
	return w.Wait()
}

// Close kills the worker if it still runs, and closes the pipes.
func (w *Worker) Close() {
	_ = w.Kill() // its exit status only says that it was killed
	w.In.Close()
	w.out.Close()
}

// Over is the line that ends the work of a worker that runs Work.
const Over = "\"over\"\n"

// Work is the worker's side of Order and Finish: it reads the order from the input, starts the work, writes Ready and
// then the work's answer. The work ends when over is closed, after Over or the end of the input.
func Work[O, A any](
	input io.Reader, output io.Writer, start func(order O) (work func(over <-chan struct{}) A, err error),
) error {
	in := json.NewDecoder(input)
	var order O
	if err := in.Decode(&order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	work, err := start(order)
	if err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		var word string
		_ = in.Decode(&word) // the end of the input also ends the work
		close(over)
	}()
	if _, err := io.WriteString(output, Ready); err != nil {
		return err
	}
	return json.NewEncoder(output).Encode(work(over))
}
