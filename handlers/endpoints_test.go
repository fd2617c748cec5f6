package handlers

// Endpoint is an endpoint of the router, for the tests that must reach all of them.
type Endpoint struct {
	Method, Template string
	Session          bool // a page of the console
	Form, File       bool // the body is a form, or has a file in it
}

// Endpoints are all the endpoints of a service.
func Endpoints(c Config) (list []Endpoint) {
	s := &server{Config: c, console: newConsole(c)}
	for _, e := range s.endpoints() {
		list = append(list, Endpoint{e.method, e.template, e.caller == withSession, e.body.isForm(), e.body.readByHandler()})
	}
	return list
}
