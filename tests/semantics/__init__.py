"""What AMQP clients rely on, checked frame by frame over a real socket."""
