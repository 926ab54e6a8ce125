package engine

import "fairlead/internal/model"

// Complete returns the state with leased addresses and chosen modes filled in.
func (e *Engine) Complete(s model.State) (model.State, error) {
	g, err := e.completed(s)
	return g.state, err
}
