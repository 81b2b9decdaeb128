from dqnspeed.bench import main

if __name__ == "__main__":
    main()
