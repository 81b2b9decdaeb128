from dqnspeed.options.command import main

if __name__ == "__main__":
    main()
