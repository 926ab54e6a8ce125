package alarm

// Signal wakes a goroutine that receives from it. Signals that are sent before it receives count as one.
type Signal chan struct{}

// NewSignal returns a Signal that was not sent.
func NewSignal() Signal { return make(Signal, 1) }

// Send sends the signal. It does not wait.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
